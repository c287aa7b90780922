"""`linnet deploy`: sends models and native tools to another machine, runs and times them there, and leaves nothing behind."""
