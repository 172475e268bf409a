"""Processes in which tools run.

The server's side is ``loader``, ``pool``, ``worker_process`` and ``output``; the side of such a
process is ``worker_main`` and ``worker``. Both speak ``protocol``.
"""
