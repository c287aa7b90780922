"""Random map programs over random broadcast patterns, and what NumPy says they give: tests/test_map_random.py runs them.
`python -m tests.maps SEED COUNT` tries some by hand, one program per graph, and names the first that is wrong."""
