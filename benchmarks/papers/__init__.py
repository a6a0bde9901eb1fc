"""The experiments of the five papers, by the protocols of the papers.

python -m benchmarks.papers DATA_FOLDER
python -m benchmarks.papers DATA_FOLDER --only srlsr --only smr --repetitions 3 --minutes 60
python -m benchmarks.papers --pages

The command runs unfinished experiments and writes the pages in docs/papers. It may be stopped at
any time. Each finished cell is a line of a file in benchmarks/papers/results, and the next run goes
on from there. `--pages` writes the pages from the stored cells and computes nothing.

NAME.py holds the experiments of a paper and NAME_page.py its claims and its page. items.tsv lists
the figures and tables, protocols/NAME.md says what was done. `results.py` reads and writes the
cells, `experiments.py` runs them, `claims.py` decides what holds, `pages.py` writes the pages.
"""
