"""Settings of the app: COGRAIL_LAUNDRY__SOAP, or `soap` in the table `[laundry]` of cograil.toml."""

from __future__ import annotations

from cograil.plugins import SettingsSection


class LaundrySettings(SettingsSection):
    """Laundry: what loads are washed with."""

    soap: str = "green"
    """Soap that a load gets unless it names another."""
