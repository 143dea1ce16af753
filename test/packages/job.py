"""A fit, two plots and a Parquet round trip, with packages of --requirements: run by
packages_test.go behind the wall. The last line of output is what came of them."""

import json

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pyarrow.parquet as pq
import seaborn as sns
from sklearn.linear_model import LinearRegression

seen = {}
x = np.arange(50).reshape(-1, 1)
fit = LinearRegression().fit(x, 3 * x.ravel() + 1)
seen["fit"] = [round(float(fit.coef_[0]), 6), round(float(fit.intercept_), 6)]
frame = pl.DataFrame({"x": x.ravel(), "y": fit.predict(x)})
frame.write_parquet("/tmp/fit.parquet")
seen["pyarrow"] = pq.read_table("/tmp/fit.parquet").equals(frame.to_arrow())
seen["polars"] = pl.read_parquet("/tmp/fit.parquet").equals(frame)
axes = sns.lineplot(x=frame["x"].to_numpy(), y=frame["y"].to_numpy())
axes.figure.savefig("/tmp/fit.png")
with open("/tmp/fit.png", "rb") as file:
    seen["seaborn"] = file.read(8) == b"\x89PNG\r\n\x1a\n"
seen["plotly"] = "Plotly.newPlot" in go.Figure(go.Scatter(x=[1, 2], y=[3, 4])).to_html()
print(json.dumps(seen))
