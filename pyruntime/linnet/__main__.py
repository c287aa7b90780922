"""`python -m linnet` is the command `linnet`."""

from linnet.cli.main import main

main()
