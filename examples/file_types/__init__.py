"""Names the types of files by their content, with Google's magika network (github.com/google/magika, Apache-2.0).
detect: bytes to a type, by the rules of the magika package; __main__: the table."""
