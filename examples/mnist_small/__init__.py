"""The small demo: this project's own digit classifier, which needs no package index.
train: makes the two data files; layers: its layers; digits: draws digits; demo: runs the net."""
