"""A day of an analyst's work, in one go: run by analyst_test.go behind the wall.

The working directory holds orders.csv and customers.csv. Every step leaves a
figure in seen; the last line of output, which the test checks, is all of them.
"""

import json
import multiprocessing
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw
from scipy import optimize
from sklearn.linear_model import LinearRegression

seen = {}

# pandas: read, join, group, pivot, describe
orders = pd.read_csv("orders.csv", parse_dates=["date"])
customers = pd.read_csv("customers.csv")
joined = orders.merge(customers, on="customer", how="left", validate="many_to_one")
joined["amount"] = joined["units"] * joined["price"]
seen["rows"] = len(joined)
seen["by_country"] = joined.groupby("country")["amount"].sum().round(2).to_dict()
pivot = joined.pivot_table(index=joined["date"].dt.strftime("%Y-%m"), columns="country", values="amount", aggfunc="sum")
seen["pivot"] = list(pivot.shape)
seen["mean_units"] = float(joined["units"].describe()["mean"])
print(pivot.round(2).to_string())

# numpy: a line through the months
monthly = pivot.sum(axis=1).to_numpy()
slope, offset = np.polyfit(np.arange(len(monthly)), monthly, 1)
seen["slope"] = round(float(slope), 6)

# Matplotlib: a plot in /tmp
figure, axes = plt.subplots()
axes.plot(pivot.index, monthly, marker="o")
axes.plot(pivot.index, slope * np.arange(len(monthly)) + offset)
figure.savefig("/tmp/plot.png")
with open("/tmp/plot.png", "rb") as file:
    seen["png"] = file.read(8) == b"\x89PNG\r\n\x1a\n"

# threads
lock, count = threading.Lock(), [0]


def add(_):
    for _ in range(1000):
        with lock:
            count[0] += 1


with ThreadPoolExecutor(8) as threads:
    list(threads.map(add, range(8)))
seen["threads"] = count[0]


# processes
def square(n):
    return n * n


with multiprocessing.Pool(2) as processes:
    seen["pool"] = sum(processes.map(square, range(100)))

# sqlite3, in memory and in a file
database = sqlite3.connect("/tmp/orders.db")
joined[["country", "amount"]].to_sql("orders", database, index=False, if_exists="replace")
database.execute("CREATE INDEX by_country ON orders (country)")
database.commit()
seen["sqlite"] = dict(database.execute("SELECT country, ROUND(SUM(amount), 2) FROM orders GROUP BY country"))
database.close()

# subprocess
child = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, timeout=30, check=True)
seen["subprocess"] = child.stdout.strip()

# polars and pyarrow: the same sums by other ways, and Parquet there and back
frame = pl.read_csv("orders.csv").join(pl.read_csv("customers.csv"), on="customer", how="left")
sums = frame.group_by("country").agg((pl.col("units") * pl.col("price")).sum().round(2).alias("amount"))
seen["polars"] = dict(sums.sort("country").iter_rows())
table = pa.Table.from_pandas(joined[["country", "amount", "units"]], preserve_index=False)
pq.write_table(table, "/tmp/orders.parquet", compression="zstd")
seen["parquet"] = pq.read_table("/tmp/orders.parquet").equals(table)
seen["polars_parquet"] = pl.read_parquet("/tmp/orders.parquet").height

# SciPy and scikit-learn
best = optimize.minimize(optimize.rosen, [1.3, 0.7, 0.8], method="BFGS")
seen["scipy"] = [round(float(x), 3) for x in best.x]
model = LinearRegression().fit(joined[["units", "price"]], 3 * joined["units"] + 2 * joined["price"] + 1)
seen["sklearn"] = [round(float(x), 6) for x in [*model.coef_, model.intercept_]]

# Pillow
image = Image.new("RGB", (64, 32), "white")
ImageDraw.Draw(image).rectangle((8, 8, 24, 24), fill=(255, 0, 0))
image.resize((32, 16)).save("/tmp/box.jpg")
with Image.open("/tmp/box.jpg") as again:
    seen["pillow"] = [again.format, *again.size]

print(json.dumps(seen))
