"""The pages, a function each that shows a scene. The folder isn't `pages`, which Streamlit would serve by itself."""
