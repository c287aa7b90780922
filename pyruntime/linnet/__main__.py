"""`python -m linnet` is the command `linnet`."""

from linnet.cli import main

main()
