"""A heat map with a colour bar."""

import matplotlib.pyplot as plt
import numpy as np

y, x = np.mgrid[-3:3:80j, -3:3:120j]
plt.imshow(np.exp(-x**2 - y**2) + np.sin(3 * x) * np.cos(2 * y) / 2, cmap="viridis", extent=(-3, 3, -3, 3))
plt.colorbar(label="height")
plt.title("Heat map");
