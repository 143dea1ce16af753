"""A line with a legend beside the axes, which is not cut off."""

import math

import matplotlib.pyplot as plt

x = [i / 20 for i in range(200)]
plt.plot(x, [math.sin(v) for v in x], label="sin x")
plt.plot(x, [math.exp(-v / 4) * math.cos(3 * v) for v in x], label="damped cosine")
plt.xlabel("x")
plt.title("Two lines")
plt.legend(loc="upper left", bbox_to_anchor=(1, 1))
