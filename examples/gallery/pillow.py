"""An image of Pillow's, as the last value."""

from PIL import Image, ImageDraw

image = Image.new("RGB", (240, 160), "white")
draw = ImageDraw.Draw(image)
for i in range(12):
    draw.ellipse((10 + 18 * i, 70 - 5 * i, 30 + 18 * i, 90 + 5 * i), fill=(20 * i, 80, 255 - 20 * i))
image
