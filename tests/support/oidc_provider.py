"""A provider of OpenID Connect on this machine that logs everybody in as one user, without a password."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID, CLIENT_SECRET = "dashboard", "secret-of-the-dashboard"


@contextmanager
def oidc_provider(email: str) -> Iterator[str]:
    """Serve it; gives the address of its metadata."""
    key = RSAKey.generate_key(2048, {"kid": "1", "use": "sig", "alg": "RS256"})
    nonces: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts, base = urlsplit(self.path), f"http://127.0.0.1:{server.server_port}"
            if parts.path == "/.well-known/openid-configuration":
                self._json({
                    "issuer": base, "authorization_endpoint": f"{base}/authorize", "token_endpoint": f"{base}/token",
                    "jwks_uri": f"{base}/keys", "id_token_signing_alg_values_supported": ["RS256"],
                    "response_types_supported": ["code"], "subject_types_supported": ["public"],
                })  # fmt: skip
            elif parts.path == "/keys":
                self._json({"keys": [key.as_dict(private=False)]})
            else:
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                code = f"code-{len(nonces)}"
                nonces[code] = query.get("nonce", "")
                self.send_response(302)
                back = urlencode({"code": code, "state": query["state"]})
                self.send_header("Location", f"{query['redirect_uri']}?{back}")
                self.end_headers()

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            now = int(time.time())
            claims = {
                "iss": f"http://127.0.0.1:{server.server_port}", "aud": CLIENT_ID, "sub": "1", "email": email,
                "iat": now, "exp": now + 600, "nonce": nonces.pop(form["code"][0]),
            }  # fmt: skip
            token = jwt.encode({"alg": "RS256", "kid": "1"}, claims, key)
            self._json({"access_token": "a", "token_type": "Bearer", "expires_in": 600, "id_token": token})

        def _json(self, content: object) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/.well-known/openid-configuration"
        finally:
            server.shutdown()
