"""Importers: other frameworks' models into linnet graphs. One package per format, one rule per source op.
Installed as `linnet.converters`."""
