"""Importers turn models of other frameworks into linnet graphs: one package per format, one rule per source op.
The package is installed as `linnet.converters`."""
