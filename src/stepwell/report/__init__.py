"""A run as one HTML page that opens from disk: pictures are inline SVG, nothing is fetched."""

from stepwell.report.page import write_report

__all__ = ["write_report"]
