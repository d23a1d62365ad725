"""Safe reading and writing of files despite concurrent writers and crashes."""
