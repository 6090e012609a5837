"""Annotation campaigns: people answer questions about images and captions in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossmatch._lazy import lazy_names

_MODULES = {
    "Campaign": "database.campaign",
    "create_campaign": "database.campaign",
    "open_campaign": "database.campaign",
    "backup_campaign": "database.backup",
    "Design": "design.declaration",
    "load_design": "design.declaration",
    "add_study": "design.add_study",
    "read_items": "design.item_files",
    "read_pool": "design.item_files",
    "Study": "study",
    "find_study": "study",
    "list_studies": "study",
    "export_study": "results.export_study",
    "simulate": "simulation.simulate",
    "Habits": "simulation.simulated_annotators",
    "power": "simulation.power_analysis",
    "serve": "web.server",
}

__all__ = [
    "Campaign",
    "Design",
    "Habits",
    "Study",
    "add_study",
    "backup_campaign",
    "create_campaign",
    "export_study",
    "find_study",
    "list_studies",
    "load_design",
    "open_campaign",
    "power",
    "read_items",
    "read_pool",
    "serve",
    "simulate",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)

if TYPE_CHECKING:
    from crossmatch.study.database.backup import backup_campaign
    from crossmatch.study.database.campaign import Campaign, create_campaign, open_campaign
    from crossmatch.study.design.add_study import add_study
    from crossmatch.study.design.declaration import Design, load_design
    from crossmatch.study.design.item_files import read_items, read_pool
    from crossmatch.study.results.export_study import export_study
    from crossmatch.study.simulation.power_analysis import power
    from crossmatch.study.simulation.simulate import simulate
    from crossmatch.study.simulation.simulated_annotators import Habits
    from crossmatch.study.study import Study, find_study, list_studies
    from crossmatch.study.web.server import serve
