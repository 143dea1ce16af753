"""A table of 4,000 rows: both ends, its shape and its types."""

import pandas as pd

pd.read_csv("examples/sales.csv")
