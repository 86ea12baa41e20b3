"""Servers and channels as every affidavit service has them.

host = ServiceHost("ocr", settings)                       # limits, keepalive, interceptors, health, reflection
add_OcrServiceServicer_to_server(servicer, host.server)
await host.run(canary=servicer.canary, close=servicer.close)

channel = connect("127.0.0.1:7442,127.0.0.1:8442", health_service="affidavit.ocr.v1.OcrService")
"""

from affidavit.libs.rpc.call import CallInfo, current_call
from affidavit.libs.rpc.channel import connect
from affidavit.libs.rpc.health import is_serving
from affidavit.libs.rpc.server import RpcSettings, ServiceHost, run_service

__all__ = ["CallInfo", "RpcSettings", "ServiceHost", "connect", "current_call", "is_serving", "run_service"]
