"""The screens: a module for each page, whose function `page` shows a scene (`dashboards/pages.py` lists them).

The folder isn't `pages`, which Streamlit would serve by itself.
"""
