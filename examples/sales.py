"""A year of sales: revenue by month and region, and what sold best.

    mcp-sandbox exec -f examples/sales.py

Standard library only, so that it runs anywhere: python3 examples/sales.py works too.
"""

import csv
from collections import Counter, defaultdict
from pathlib import Path


def line(label, values):
    print(f"{label:<8}" + "".join(f"{value:>12,.0f}" for value in values))


paths = [Path("examples/sales.csv"), Path("sales.csv")]
if "__file__" in globals():
    paths.append(Path(__file__).with_name("sales.csv"))
path = next((p for p in paths if p.exists()), paths[0])

with path.open(newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))

revenue = defaultdict(Counter)  # month -> region -> money
products = defaultdict(Counter)  # product -> units, revenue
incomplete = 0

for row in rows:
    if not row["units"] or not row["unit_price"]:
        incomplete += 1
        continue
    units = int(row["units"])  # below zero: returned goods
    discount = float(row["discount"] or 0)
    amount = units * float(row["unit_price"]) * (1 - discount)
    revenue[row["date"][:7]][row["region"] or "(none)"] += amount
    products[row["product"]].update(units=units, revenue=amount)

by_region = Counter()
for month in revenue.values():
    by_region.update(month)
regions = [name for name, _ in by_region.most_common()]
total = sum(by_region.values())

print(f"{len(rows)} rows, {incomplete} without units or price left out\n")


print("Revenue by month and region")
print(" " * 8 + "".join(f"{region:>12}" for region in regions + ["Total"]))
for month in sorted(revenue):
    figures = [revenue[month][region] for region in regions]
    line(month, figures + [sum(figures)])
line("Total", [by_region[region] for region in regions] + [total])

best = sorted(products, key=lambda name: products[name]["revenue"], reverse=True)[:5]
print(f"\n{'Top products':<28}{'Units':>8}{'Revenue':>12}{'Share':>8}")
for name in best:
    sold = products[name]
    print(f"{name:<28}{sold['units']:>8,}{sold['revenue']:>12,.0f}{sold['revenue'] / total:>8.1%}")

{
    "rows": len(rows),
    "incomplete": incomplete,
    "revenue": round(total, 2),
    "by_region": {region: round(by_region[region], 2) for region in regions},
    "best_month": max(revenue, key=lambda month: sum(revenue[month].values())),
    "top_products": best,
}
