"""Examples of one model over several machines. One command runs each, such as `python -m examples.machines.phone_and_pc`.
`README.md` lists them. The machines are processes of this one, unless LINNET_HOSTS names others."""
