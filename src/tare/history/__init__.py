"""Any number of results in a folder, over time: what each cell took, and when that changed.

Results stay the truth. What is kept of them beside (docs/formats/history.md) is a summary, which is
made anew from them wherever it is missing: `index.py` keeps it, `summary.py` makes one result's
share of it, `query.py` asks it, by DuckDB, `folder.py` finds results.
"""
