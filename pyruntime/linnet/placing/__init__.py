"""Which machine runs which node of a model: what each would take there, a placement by these costs, and a search for a
better one (docs/machines.md)."""

from linnet.placing.found import place
from linnet.placing.placement import Placement

__all__ = ["Placement", "place"]
