"""The command line: `linnet` and its commands, one file each."""
