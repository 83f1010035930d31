"""Every answer of every API, walked over: asked, refused and failed in every way that can be enumerated."""
