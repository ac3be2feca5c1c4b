"""The entries of the catalogue by theme. `properties/catalogue.py` collects them."""
