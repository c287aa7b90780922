"""linnet.ray: training on a Ray cluster, and machines of the cluster that run parts of models. These are the public names of
linnet.sync.ray and linnet.sync.ray_hosts."""

from linnet.sync.ray import Job, run
from linnet.sync.ray_hosts import Hosts

__all__ = ["Hosts", "Job", "run"]
