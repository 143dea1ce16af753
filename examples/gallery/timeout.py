"""What was drawn before a time-out arrives."""

import time

import matplotlib.pyplot as plt

plt.figure(figsize=(3, 2))
plt.plot([4, 2, 1])
plt.title("before the limit")
print("drawn")
time.sleep(3600)
