"""The pages: one function each, which shows a scene. A folder called `pages` Streamlit would serve by itself."""
