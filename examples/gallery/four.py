"""Four figures in one call come in the order in which they were made, text and pictures apart."""

import matplotlib.pyplot as plt

for name, marker in ("first", "o"), ("second", "s"), ("third", "^"), ("fourth", "*"):
    plt.figure(figsize=(3, 2))
    plt.plot([1, 3, 2], marker=marker)
    plt.title(name)
    print("drew", name)
