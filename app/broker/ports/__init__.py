"""The interfaces of the backends, one file for each subject.

Every method of a store port takes effect durably before it returns. It raises `StoreUnavailable` if the backend cannot
answer, and never an exception of a driver. Lists of results have the order of the arguments. Concurrent calls of one
method in one process share statements; each call gets its own result.
"""
