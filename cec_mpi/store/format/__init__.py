"""Format of a store on disk: manifest, shards, blocks and their checksums."""
