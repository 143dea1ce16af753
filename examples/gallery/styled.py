"""A styled table: text for a model, HTML beside it for a person."""

import pandas as pd

table = pd.DataFrame({"region": ["North", "South"], "units": [1200, 950], "share": [0.558, 0.442]})
table.style.format({"share": "{:.1%}"}).highlight_max(subset=["units"])
