"""The small demo: a digit classifier of this project's own, which needs no package index.
train: makes the two data files; layers: what it needs; digits: draws digits; demo: runs the net."""
