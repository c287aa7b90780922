"""Random map programs over random broadcast patterns, with NumPy's results. tests/test_map_random.py runs them.
`python -m tests.maps SEED COUNT` tries some by hand, one program per graph, and names the first wrong one."""
