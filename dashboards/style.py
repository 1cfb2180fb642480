"""The look of what Streamlit itself draws: small headings, no fading while new data is read, a page fit for printing."""

STYLE = """
[data-testid=stMain] h1 { font-size: 1.6rem; padding: 0.2rem 0 0.1rem; overflow-wrap: anywhere; }
[data-testid=stMain] h2 { font-size: 1.05rem; font-weight: 600; padding: 0 0 0.1rem; }
[data-testid=stMainBlockContainer] { padding-top: 2.6rem; }
[data-stale=true] { opacity: 1 !important; transition: none !important; }
@media print {
  [data-testid=stSidebar], [data-testid=stHeader], [data-testid=stToolbar] { display: none !important; }
  [data-testid=stApp], [data-testid=stMain], [data-testid=stAppViewContainer] { position: static !important; overflow: visible !important; height: auto !important; }
}
"""
