"""Many images into Parquet, by processes on this machine or by Ray; killed at any moment it goes on where it was.

    inputs   a folder, a glob, a list or a Parquet of paths -> paths
    job      what a job is: its settings and its paths, frozen in the output folder, cut into shards
    rows     one image -> one row
    work     one shard -> one file, written atomically; the same for both engines
    local    processes with one thread each
    cluster  Ray Data with the same function as a pool of actors
    run      all of it

A shard's name and rows follow from the job alone. Whoever does it, however often, writes the same file: so a job that
was killed is finished by doing the shards that are not there, and no image is lost or counted twice.
"""

from fastgaze.runtime.batch.job import Options
from fastgaze.runtime.batch.run import ENGINES, Summary, run

__all__ = ["ENGINES", "Options", "Summary", "run"]
