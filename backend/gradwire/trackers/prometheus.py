"""Prometheus: the last figures in its text format in FOLDER/metrics.prom, for node_exporter's textfile collector."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, start_http_server, write_to_textfile

from gradwire.errors import UsageError

PORT_VARIABLE = "GRADWIRE_PROMETHEUS_PORT"
"""With a port in it, the figures can be scraped there as well, on 127.0.0.1 alone."""


class PrometheusTracker:
    """A gauge for each figure, `throughput/tokens_per_sec` being `gradwire_throughput_tokens_per_sec`."""

    errors: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, file: Path, run_name: str, registry: Any, server: Any) -> None:
        self._file = file
        self._run_name = run_name
        self._registry = registry
        self._server = server
        self._gauges: dict[str, Any] = {}

    def log(self, figures: Mapping[str, float], *, step: int) -> None:
        """Set the gauges, and replace the file by a new one."""
        for name, value in {**figures, "step": float(step)}.items():
            if name not in self._gauges:
                known = f"gradwire_{name.replace('/', '_')}"
                self._gauges[name] = Gauge(known, f"{name} of the last step", ["run"], registry=self._registry)
            self._gauges[name].labels(run=self._run_name).set(value)
        write_to_textfile(str(self._file), self._registry)

    def close(self) -> None:
        """Stop the server; the file stays."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def open_tracker(folder: Path, run_name: str, settings: dict[str, Any]) -> PrometheusTracker:
    """Open the file, and the server where one is asked for; settings are no figures and are left out.

    Raises UsageError for a port that is none or cannot be listened at.
    """
    folder.mkdir(parents=True, exist_ok=True)
    registry = CollectorRegistry()
    server = None
    port = os.environ.get(PORT_VARIABLE)
    if port:
        if not port.isdecimal():
            raise UsageError(f"{PORT_VARIABLE} is {port!r}, not a port")
        try:
            server, _ = start_http_server(int(port), addr="127.0.0.1", registry=registry)
        except OSError as error:
            raise UsageError(f"{PORT_VARIABLE}: cannot listen at 127.0.0.1:{port}: {error.strerror}") from error
    return PrometheusTracker(folder / "metrics.prom", run_name, registry, server)
