"""Four figures in one call come in the order in which they were made, text and pictures apart.

Each is wider than the one before it, so that the order can be seen from their sizes.
"""

import matplotlib.pyplot as plt

for width, name, marker in (3, "first", "o"), (4, "second", "s"), (5, "third", "^"), (6, "fourth", "*"):
    plt.figure(figsize=(width, 2))
    plt.plot([1, 3, 2], marker=marker)
    plt.title(name)
    print("drew", name)
