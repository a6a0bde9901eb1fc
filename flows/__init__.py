"""Prefect flows: the stages, the pipeline, and the report."""
