"""What a store is on disk: manifest, shards, blocks and their checksums."""
