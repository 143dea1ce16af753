"""Bars of a year's sales, read from the workspace."""

import csv
from collections import Counter

import matplotlib.pyplot as plt

revenue = Counter()
with open("examples/sales.csv", newline="", encoding="utf-8") as file:
    for row in csv.DictReader(file):
        if row["units"] and row["unit_price"]:
            revenue[row["region"] or "(none)"] += int(row["units"]) * float(row["unit_price"])

names = [name for name, _ in revenue.most_common()]
plt.bar(names, [revenue[name] for name in names], color="tab:green")
plt.ylabel("revenue")
plt.title("Revenue by region")
plt.xticks(rotation=60)
plt.show()
print("best:", names[0])
