"""A container for `linnet serve`: docs/serving_containers.md says how to build and use it."""
