"""Flower's app at a site: it hands each message to the site's node."""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from raydr.runtimes.flower.grid import CONTENT, RECORD
from raydr.runtimes.flower.site_node import SiteNode


def client_app(node_of: Callable[[Context], SiteNode]) -> ClientApp:
    """Return the app of a site.

    Nothing is kept in Flower's state of the context, because a node that ends loses it. The site's own folder has
    everything.

    Parameters
    ----------
    node_of : callable
        Returns the site's node from Flower's context, whose ``node_config`` the site itself has written.
    """
    app = ClientApp()

    @app.query("raydr")
    def answer(message: Message, context: Context) -> Message:
        content = message.content[RECORD][CONTENT]
        answered = node_of(context).answer(content if isinstance(content, bytes) else b"")
        return Message(RecordDict({RECORD: ConfigRecord({CONTENT: answered})}), reply_to=message)

    return app
