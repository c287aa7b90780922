"""Measures linnet beside other runtimes, each in an environment of its own: `make bench-peers`, `python -m tests.peers --help`.
`environments` installs, `networks` and `convert` make files, `worker` times one engine, `measure` interleaves, `page` shows."""
