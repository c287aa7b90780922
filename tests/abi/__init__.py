"""The binary interface of the public headers as text: functions, structs with the offsets of their fields, values of enums.
`python -m tests.abi` compares the headers with tests/abi/*.txt; with --write it renews these listings."""
