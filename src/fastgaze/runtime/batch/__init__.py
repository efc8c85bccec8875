"""Many images into Parquet, by processes on this machine or by Ray; a job that was killed continues where it stopped.

    store    files anywhere that fsspec reaches, written whole or not at all
    job      what a job is: its settings and its paths, frozen in the output folder, cut into shards
    work     one shard -> one file, written atomically; the same for both runners
    local    processes with one thread each
    run      the whole job, here or with Ray Data

A shard's name and rows follow from the job alone. Whoever does it, however often, writes the same file: so a job that
was killed is finished by doing the shards that are not there, and no image is lost or counted twice.
"""

from fastgaze.runtime.batch.job import BatchOptions
from fastgaze.runtime.batch.run import RUNNERS, BatchSummary, run

__all__ = ["RUNNERS", "BatchOptions", "BatchSummary", "run"]
