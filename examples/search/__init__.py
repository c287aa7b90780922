"""Searches that run in minutes: hyper-parameters of a digit classifier, and an architecture of a keyword spotter that fits
a small processor. README.md says what they found."""
