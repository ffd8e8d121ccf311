"""Numbers as people read them."""

FIGURES = (  # of an evaluation, in the order in which they are shown
    ("AUC", "auc"),
    ("NE", "normalised_entropy"),
    ("log loss", "log_loss"),
    ("calibration", "calibration"),
    ("grouped AUC", "grouped_auc"),
)
_COUNTS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def in_bytes(count: float) -> str:
    """1.5 GiB."""
    for unit, name in _BYTES:
        if count >= unit:
            return f"{count / unit:.3g} {name}" if count < 1000 * unit else f"{count / unit:,.0f} {name}"
    return f"{count:.0f} B"


def in_count(count: float) -> str:
    """12.3 M; below ten thousand, the number itself."""
    for unit, name in _COUNTS:
        if count >= max(unit, 1e4):
            return f"{count / unit:.3g} {name}" if count < 999.5 * unit else f"{count / unit:,.0f} {name}"
    return f"{count:,.0f}"


def in_rate(per_s: float) -> str:
    """21,300 or 4.21."""
    return f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.3g}"


def in_duration(seconds: float) -> str:
    """0:02:05."""
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def in_figure(value: float | None) -> str:
    """0.7812, or a dash for what nobody knows."""
    return "-" if value is None else f"{value:.4f}"


def in_percent(share: float | None, digits: int = 1) -> str:
    """91.2%, or a dash for what nobody knows."""
    return "-" if share is None else f"{100 * share:.{digits}f}%"
